import java.io.IOException;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Future;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes what a cluster is to lose, and prints all that it answers, before and after.
 *
 * <p>java LostAndFound BOOTSTRAP STEPS. Each line of the file STEPS is one of
 *
 * <pre>
 * create TOPIC PARTITIONS REPLICA,... [KEY=VALUE ...]   all partitions on these brokers
 * send PRODUCER CODEC TOPIC PARTITION TIMESTAMP DISORDER COUNT BYTES KEYS
 *      one batch; PRODUCER t... is transactional, its transaction begins with the first send
 * commit PRODUCER
 * abort PRODUCER     also of an earlier run: the transaction that it left open ends
 * delete TOPIC PARTITION OFFSET    all records before
 * configure TOPIC KEY=VALUE
 * move TOPIC REPLICA,...           and wait until all are in sync; the first one is to lead
 * abandon TOPIC PARTITION          aborts what is open, as kafka-transactions.sh does
 * ask FILE TIMES TOPIC ...         writes all answers; TIMES: what is asked, written if missing
 * </pre>
 *
 * <p>What is open at the end stays open. Lines of an answer: earliest, latest, latest_committed,
 * max_timestamp, time, producer, record; then topic, partition and what was found.
 */
public final class LostAndFound {
    private static final int TIMES = 500;
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();
    private static final Map<String, Boolean> OPEN = new HashMap<>();
    private static final Random RANDOM = new Random(33);
    private static String bootstrap;
    private static Admin admin;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        for (String line : Files.readAllLines(Path.of(args[1]))) {
            String[] step = line.split(" ");
            switch (step[0]) {
                case "create" -> create(step);
                case "send" -> send(step);
                case "commit" -> end(step[1], true);
                case "abort" -> end(step[1], false);
                case "delete" -> delete(step);
                case "configure" -> configure(step);
                case "move" -> move(step);
                case "abandon" -> abandon(step);
                case "ask" -> ask(step);
                default -> throw new IllegalArgumentException(line);
            }
        }
        Runtime.getRuntime().halt(0); // closing a producer would abort its transaction
    }

    private static void create(String[] step) throws Exception {
        List<Integer> replicas = numbers(step[3]);
        Map<Integer, List<Integer>> assigned = new TreeMap<>();
        for (int partition = 0; partition < Integer.parseInt(step[2]); partition++) {
            assigned.put(partition, replicas);
        }
        Map<String, String> settings = Arrays.stream(step).skip(4).map(pair -> pair.split("=", 2))
                .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
        admin.createTopics(List.of(new NewTopic(step[1], assigned).configs(settings))).all().get();
    }

    private static void send(String[] step) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(step[1], step[2]);
        if (step[1].startsWith("t") && !OPEN.getOrDefault(step[1], false)) {
            producer.beginTransaction();
            OPEN.put(step[1], true);
        }
        long timestamp = Long.parseLong(step[5]);
        long disorder = Long.parseLong(step[6]);
        int keys = Integer.parseInt(step[9]);
        Future<RecordMetadata> last = null;
        for (int number = 0; number < Integer.parseInt(step[7]); number++) {
            byte[] value = new byte[Integer.parseInt(step[8])];
            RANDOM.nextBytes(value);
            byte[] key = ("key-" + RANDOM.nextInt(keys)).getBytes(StandardCharsets.UTF_8);
            long late = disorder == 0 ? 0 : RANDOM.nextLong(disorder);
            var record = new ProducerRecord<>(
                    step[3], Integer.valueOf(step[4]), Long.valueOf(timestamp - late), key, value);
            record.headers().add("number", key);
            last = producer.send(record);
        }
        producer.flush();
        last.get(); // throws what the batch failed of
    }

    private static void end(String name, boolean commits) {
        boolean isOpen = OPEN.getOrDefault(name, false);
        KafkaProducer<byte[], byte[]> producer = producer(name, "none"); // ends one left open
        if (isOpen && commits) {
            producer.commitTransaction();
        } else if (isOpen) {
            producer.abortTransaction();
        }
        OPEN.put(name, false);
    }

    private static KafkaProducer<byte[], byte[]> producer(String name, String codec) {
        boolean isTransactional = name.startsWith("t");
        return PRODUCERS.computeIfAbsent(isTransactional ? name : name + codec, key -> {
            Properties settings = new Properties();
            settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
            settings.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, codec);
            settings.put(ProducerConfig.BATCH_SIZE_CONFIG, 1 << 19);
            settings.put(ProducerConfig.LINGER_MS_CONFIG, 60_000); // none goes before a flush
            settings.put(ProducerConfig.BUFFER_MEMORY_CONFIG, 1 << 23);
            if (isTransactional) {
                settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, name);
                settings.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, 86_400_000);
            }
            ByteArraySerializer plain = new ByteArraySerializer();
            KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, plain, plain);
            if (isTransactional) {
                producer.initTransactions();
            }
            return producer;
        });
    }

    private static void delete(String[] step) throws Exception {
        TopicPartition where = new TopicPartition(step[1], Integer.parseInt(step[2]));
        RecordsToDelete before = RecordsToDelete.beforeOffset(Long.parseLong(step[3]));
        admin.deleteRecords(Map.of(where, before)).all().get();
    }

    private static void configure(String[] step) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, step[1]);
        String[] pair = step[2].split("=", 2);
        var change = new AlterConfigOp(
                new ConfigEntry(pair[0], pair[1]), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(topic, List.of(change))).all().get();
    }

    private static void move(String[] step) throws Exception {
        List<Integer> replicas = numbers(step[2]);
        Map<TopicPartition, Optional<NewPartitionReassignment>> wanted = new HashMap<>();
        for (TopicPartition each : partitions(List.of(step[1]))) {
            wanted.put(each, Optional.of(new NewPartitionReassignment(replicas)));
        }
        admin.alterPartitionReassignments(wanted).all().get();
        await(step[1], partition -> partition.isr().stream().map(Node::id)
                .collect(Collectors.toSet()).equals(Set.copyOf(replicas)));
        admin.electLeaders(ElectionType.PREFERRED, wanted.keySet()).partitions().get();
        await(step[1], partition -> partition.leader().id() == replicas.get(0));
    }

    private static void await(String topic, Predicate<TopicPartitionInfo> holds) throws Exception {
        long deadline = System.nanoTime() + Duration.ofMinutes(5).toNanos();
        while (!describe(List.of(topic)).get(topic).partitions().stream().allMatch(holds)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("after 5 minutes: " + describe(List.of(topic)));
            }
            Thread.sleep(100);
        }
    }

    private static void abandon(String[] step) throws Exception {
        TopicPartition where = new TopicPartition(step[1], Integer.parseInt(step[2]));
        for (ProducerState state : admin.describeProducers(List.of(where)).partitionResult(where)
                .get().activeProducers()) {
            if (state.currentTransactionStartOffset().isPresent()) {
                admin.abortTransaction(new AbortTransactionSpec(
                        where, state.producerId(), (short) state.producerEpoch(),
                        state.coordinatorEpoch().orElse(0))).all().get();
            }
        }
    }

    private static void ask(String[] step) throws Exception {
        List<TopicPartition> partitions = partitions(Arrays.asList(step).subList(3, step.length));
        Map<TopicPartition, List<Long>> timestamps = new HashMap<>();
        try (PrintWriter out = new PrintWriter(step[1], StandardCharsets.UTF_8)) {
            askAdmin(out, partitions);
            for (IsolationLevel isolation : IsolationLevel.values()) {
                String level = isolation.name().toLowerCase();
                try (var consumer = consumer(level)) {
                    for (TopicPartition each : partitions) {
                        timestamps.put(each, consume(out, consumer, level, each));
                    }
                }
            }
            askTimes(out, times(Path.of(step[2]), timestamps));
        }
    }

    private static void askAdmin(PrintWriter out, List<TopicPartition> partitions)
            throws Exception {
        var plain = new ListOffsetsOptions(IsolationLevel.READ_UNCOMMITTED);
        list(out, "earliest", partitions, OffsetSpec.earliest(), plain);
        list(out, "latest", partitions, OffsetSpec.latest(), plain);
        list(out, "max_timestamp", partitions, OffsetSpec.maxTimestamp(), plain);
        var committed = new ListOffsetsOptions(IsolationLevel.READ_COMMITTED);
        list(out, "latest_committed", partitions, OffsetSpec.latest(), committed);
        for (var entry : admin.describeProducers(partitions).all().get().entrySet()) {
            entry.getValue().activeProducers().forEach(state -> print(out, "producer",
                    entry.getKey(), state.producerId(), state.producerEpoch(),
                    state.lastSequence(), state.lastTimestamp(),
                    state.coordinatorEpoch().orElse(-1),
                    state.currentTransactionStartOffset().orElse(-1)));
        }
    }

    private static void list(PrintWriter out, String kind, List<TopicPartition> partitions,
            OffsetSpec spec, ListOffsetsOptions options) throws Exception {
        Map<TopicPartition, OffsetSpec> asked =
                partitions.stream().collect(Collectors.toMap(Function.identity(), each -> spec));
        admin.listOffsets(asked, options).all().get().forEach(
                (each, found) -> print(out, kind, each, found.offset(), found.timestamp()));
    }

    private static List<Long> consume(PrintWriter out, KafkaConsumer<byte[], byte[]> consumer,
            String level, TopicPartition partition) throws Exception {
        List<Long> timestamps = new ArrayList<>();
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        while (consumer.position(partition) < end) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                print(out, "record", partition, level, record.offset(), record.timestamp(),
                        record.timestampType().id, record.leaderEpoch().orElse(-1), hash(record));
                timestamps.add(record.timestamp());
            }
        }
        return timestamps;
    }

    private static String hash(ConsumerRecord<byte[], byte[]> record) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        digest.update(record.key() == null ? new byte[0] : record.key());
        digest.update(record.value());
        record.headers().forEach(header -> digest.update(header.value()));
        return HexFormat.of().formatHex(digest.digest(), 0, 12);
    }

    /** Returns what the file says; without one, times of records, just before and after them. */
    private static Map<TopicPartition, List<Long>> times(
            Path file, Map<TopicPartition, List<Long>> found) throws IOException {
        if (!Files.exists(file)) {
            List<String> lines = new ArrayList<>();
            found.forEach((each, timestamps) -> {
                for (int number = 0; number < TIMES && !timestamps.isEmpty(); number++) {
                    long at = timestamps.get(RANDOM.nextInt(timestamps.size()));
                    lines.add(each.topic() + " " + each.partition() + " "
                            + (at + RANDOM.nextInt(3) - 1));
                }
            });
            Files.write(file, lines);
        }
        Map<TopicPartition, List<Long>> asked = new HashMap<>();
        for (String line : Files.readAllLines(file)) {
            String[] words = line.split(" ");
            TopicPartition where = new TopicPartition(words[0], Integer.parseInt(words[1]));
            if (found.containsKey(where)) {
                asked.computeIfAbsent(where, key -> new ArrayList<>()).add(Long.parseLong(words[2]));
            }
        }
        return asked;
    }

    private static void askTimes(PrintWriter out, Map<TopicPartition, List<Long>> asked) {
        try (var consumer = consumer("read_uncommitted")) {
            int most = asked.values().stream().mapToInt(List::size).max().orElse(0);
            for (int number = 0; number < most; number++) {
                int at = number;
                Map<TopicPartition, Long> once = new HashMap<>();
                asked.forEach((each, times) -> {
                    if (at < times.size()) {
                        once.put(each, times.get(at));
                    }
                });
                consumer.offsetsForTimes(once).forEach((each, found) -> print(out, "time", each,
                        once.get(each), found == null ? -1 : found.offset(),
                        found == null ? -1 : found.timestamp()));
            }
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String isolation) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, isolation);
        settings.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 20); // at the end of each partition
        settings.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 1 << 22); // whole segments
        ByteArrayDeserializer plain = new ByteArrayDeserializer();
        return new KafkaConsumer<>(settings, plain, plain);
    }

    private static List<TopicPartition> partitions(Collection<String> topics) throws Exception {
        return describe(topics).values().stream().sorted((a, b) -> a.name().compareTo(b.name()))
                .flatMap(topic -> topic.partitions().stream()
                        .map(one -> new TopicPartition(topic.name(), one.partition())))
                .toList();
    }

    private static Map<String, TopicDescription> describe(Collection<String> topics)
            throws Exception {
        return admin.describeTopics(topics).allTopicNames().get();
    }

    private static List<Integer> numbers(String text) {
        return Arrays.stream(text.split(",")).map(Integer::valueOf).toList();
    }

    private static void print(PrintWriter out, String kind, TopicPartition where, Object... what) {
        String found = Arrays.stream(what).map(String::valueOf).collect(Collectors.joining(" "));
        out.println(kind + " " + where.topic() + " " + where.partition() + " " + found);
    }
}

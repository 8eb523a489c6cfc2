package kip33.oracle.segment;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Runs Kafka's own {@code DumpLogSegments} on one file and answers what it printed.
 *
 * <p>It is a Scala class of the broker up to 4.2 and a Java class of kafka-tools from 4.3 on, hence
 * reflection.
 */
public final class IndexDump {
    private static final List<String> CLASSES =
        List.of("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments");

    public Map<String, Object> answer(JsonNode request) throws ReflectiveOperationException {
        List<String> arguments = new ArrayList<>(List.of("--files", request.get("file").asText()));
        for (JsonNode option : request.path("options"))
            arguments.add(option.asText());
        Map<String, Object> answer = new LinkedHashMap<>();
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complaints = new ByteArrayOutputStream();
        Method main = dumpLogSegments().getMethod("main", String[].class);
        PrintStream output = System.out;
        PrintStream error = System.err;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complaints, true, StandardCharsets.UTF_8));
        try {
            scala.Console.withOut(printed, () -> {
                try {
                    return main.invoke(null, (Object) arguments.toArray(new String[0]));
                } catch (IllegalAccessException hidden) {
                    throw new IllegalStateException(hidden);
                } catch (InvocationTargetException failed) {
                    Throwable thrown = failed.getCause();
                    answer.put("exception", thrown.getClass().getSimpleName());
                    answer.put("message", String.valueOf(thrown.getMessage()));
                    return null;
                }
            });
        } finally {
            System.setOut(output);
            System.setErr(error);
        }
        answer.put("printed", printed.toString(StandardCharsets.UTF_8));
        answer.put("complaints", complaints.toString(StandardCharsets.UTF_8));
        return answer;
    }

    private static Class<?> dumpLogSegments() throws ClassNotFoundException {
        for (String name : CLASSES) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException elsewhere) {
                // the next name, then
            }
        }
        throw new ClassNotFoundException("DumpLogSegments is none of " + CLASSES);
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Reads KEY=VALUE lines; prints for each whether this Kafka has such a setting and takes it. */
public class TopicSettings {
    public static void main(String[] arguments) throws Exception {
        Map<String, ConfigDef.ConfigKey> keys = LogConfig.configKeys();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("=", 2);
            ConfigDef.ConfigKey key = keys.get(parts[0]);
            System.out.println(line + "\t" + (key == null ? "unknown" : taken(key, parts[1])));
        }
    }

    private static String taken(ConfigDef.ConfigKey key, String text) {
        try {
            Object value = ConfigDef.parseType(key.name, text, key.type);
            if (key.validator != null) {
                key.validator.ensureValid(key.name, value);
            }
            return "taken";
        } catch (ConfigException refused) {
            return "refused";
        }
    }
}
